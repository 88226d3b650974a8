#[tokio::test]
async fn a_test_knows_its_name() {
    async {
        assert_eq!(test_name!(), "tideline_tests::requirement::tests::a_test_knows_its_name");
    }
    .await;
}

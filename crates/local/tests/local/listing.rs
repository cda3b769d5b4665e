//! Listing sandboxes.

use std::collections::BTreeMap;

use podbay_client::provider::{Phase, Provider, Query, Wanted};

use crate::harness::{Case, World, make, named, run};

pub(crate) const CASES: &[Case] = &[("lists are sorted, paged and filtered", pages)];

fn pages(world: &World) {
    run(async {
        let local = world.local();
        let mut ids: Vec<String> = (0..7).map(|number| world.id(&format!("s{number}"))).collect();
        for (number, id) in ids.iter().enumerate().rev() {
            let labels = BTreeMap::from([("team".to_owned(), if number % 2 == 0 { "red" } else { "blue" }.to_owned())]);
            make(&local, &Wanted { labels, ..named(id) }).await;
        }
        ids.sort();

        let mut seen = Vec::new();
        let mut query = Query { limit: Some(3), ..Query::default() };
        let mut sizes = Vec::new();
        loop {
            let page = local.list(&query).await.unwrap();
            sizes.push(page.sandboxes.len());
            seen.extend(page.sandboxes.into_iter().map(|listed| listed.id));
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => break,
            }
        }
        assert_eq!((&seen, sizes), (&ids, vec![3, 3, 1]));

        // The next page starts after the cursor even if that sandbox is gone, and a full last page has no cursor.
        local.delete(&ids[2]).await.unwrap();
        let query = Query { limit: Some(4), cursor: Some(ids[2].clone()), ..Query::default() };
        let page = local.list(&query).await.unwrap();
        assert_eq!(
            page.sandboxes.iter().map(|listed| &listed.id).collect::<Vec<_>>(),
            ids[3..].iter().collect::<Vec<_>>()
        );
        assert_eq!(page.cursor, None);

        let labels = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
        let page = local.list(&Query { labels, limit: Some(2), ..Query::default() }).await.unwrap();
        assert_eq!(page.sandboxes.iter().map(|listed| &listed.id).collect::<Vec<_>>(), [&ids[1], &ids[3]]);
        assert_eq!(page.cursor.as_ref(), Some(&ids[3]));
        assert!(page.sandboxes.iter().all(|listed| listed.phase == Phase::Running && listed.active_ms.is_some()));

        let dead = local.list(&Query { phase: Some(Phase::Terminated), ..Query::default() }).await.unwrap();
        assert!(dead.sandboxes.is_empty());
        for id in &ids {
            local.delete(id).await.unwrap();
        }
    });
}
